"""What the intake means to do and has done, on a local disk, so that a crash at any point can be understood."""
