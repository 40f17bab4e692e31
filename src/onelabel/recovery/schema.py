"""The files that recovery writes and review reads: their header's key, their columns. Imports nothing."""

RECOVERED, AUDITED, VERSION = "onelabel.recovered", "onelabel.audit", 1
COLUMNS = {
    RECOVERED: {
        "row": "int64",
        "example": "string",
        "class": "string",
        "class_index": "int32",
        "probability": "float",
        "observed": "int8",
        "rank": "int32",
    },
    AUDITED: {"row": "int64", "example": "string", "inclusion_probability": "double", "stratum": "string"},
}
