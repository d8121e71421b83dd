"""`penstock doctor`: checks that the live site agrees with its site file; every problem has a remedy."""
