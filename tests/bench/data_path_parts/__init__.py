"""What tests/bench/data_path.py is made of: dumps to measure on, the two sides, and how they are
measured.
"""
