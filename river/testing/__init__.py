"""What tests of River, and of applications that use it, are built from."""
