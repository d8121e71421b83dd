"""The drop folder's clerk: takes each file once, as its owner's, and says where it went."""
