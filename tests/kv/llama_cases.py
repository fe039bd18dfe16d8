"""What llama.cpp is asked, for the child that asks and the tests that compare; imports nothing."""

TYPES = {"f16": 1, "q8_0": 8, "q4_0": 2, "bf16": 30}
FLASH = {"on": 1, "off": 0, "auto": -1}
PAIRS = [("f16", "f16"), ("q8_0", "q8_0"), ("q4_0", "q4_0"), ("q8_0", "f16"), ("f16", "q8_0"), ("bf16", "bf16")]
CASES = [f"{k} {v} {flash}" for k, v in PAIRS for flash in FLASH]
BLOBS = ["f16 f16 on", "f16 f16 off", "q8_0 q8_0 on"]  # cases whose whole state is looked at
SHORT, LONG, LONGEST = 40, 48, 200  # tokens
ROLLBACK = 3  # states of past tokens that are asked for
