"""What the intake means to do and has done, so that a crash at any point can be understood."""
