"""Kafka's message schemas of the APIs of transactions, as data: see `message_schemas`.

In a field's definition, a number is the first version with the field, and `until` is the last
version. The words "v3_and_below" in the schema of AddPartitionsToTxn are part of Kafka's field
names.

Source: Kafka 3.9 `clients/src/main/resources/common/message/*.json`.
"""

from protocol.wire.fields import (
    ERROR,
    GROUP_ID,
    ApiSchema,
    Kind,
    PlainMessage,
    array_field,
    bool_field,
    group_instance,
    int16_field,
    int32_field,
    int64_field,
    str_field,
    struct_array,
    throttle_time,
)

_TRANSACTIONAL_ID = str_field("transactional_id")
_PRODUCER_ID = int64_field("producer_id")
_PRODUCER_EPOCH = int16_field("producer_epoch")

INIT_PRODUCER_ID = ApiSchema(
    request_fields=(
        str_field("transactional_id", nullable=True),
        int32_field("transaction_timeout_ms"),
        int64_field("producer_id", 3),
        int16_field("producer_epoch", 3),
    ),
    response_fields=(throttle_time(0), ERROR, _PRODUCER_ID, _PRODUCER_EPOCH),
)


def _lift_add_partitions(request: PlainMessage) -> PlainMessage:
    """Return the newest structure of a request below v4, which has a single transaction."""
    prefix = "v3_and_below_"
    transaction: PlainMessage = {
        name.removeprefix(prefix): value for name, value in request.items()
    }
    return {"transactions": [transaction]}


def _lower_add_partitions(response: PlainMessage) -> PlainMessage:
    """Return the structure of an answer below v4, with the results of the single transaction."""
    results = response["results_by_transaction"]
    if not isinstance(results, list) or len(results) != 1 or not isinstance(results[0], dict):
        raise ValueError(f"an AddPartitionsToTxn below v4 is about one transaction: {results!r}")
    return {"results_by_topic_v3_and_below": results[0]["topic_results"]}


_TXN_TOPICS = (str_field("name"), array_field(Kind.INT, "partitions"))
_TXN_TOPIC_RESULTS = (
    str_field("name"),
    struct_array(
        "results_by_partition", int32_field("partition_index"), int16_field("partition_error_code")
    ),
)

ADD_PARTITIONS_TO_TXN = ApiSchema(
    request_fields=(
        struct_array(
            "transactions",
            _TRANSACTIONAL_ID,
            _PRODUCER_ID,
            _PRODUCER_EPOCH,
            bool_field("verify_only"),
            struct_array("topics", *_TXN_TOPICS),
            since=4,
        ),
        str_field("v3_and_below_transactional_id", until=3),
        int64_field("v3_and_below_producer_id", until=3),
        int16_field("v3_and_below_producer_epoch", until=3),
        struct_array("v3_and_below_topics", *_TXN_TOPICS, until=3),
    ),
    response_fields=(
        throttle_time(0),
        int16_field("error_code", 4),
        struct_array(
            "results_by_transaction",
            _TRANSACTIONAL_ID,
            struct_array("topic_results", *_TXN_TOPIC_RESULTS),
            since=4,
        ),
        struct_array("results_by_topic_v3_and_below", *_TXN_TOPIC_RESULTS, until=3),
    ),
    reshaped_below=4,
    lift=_lift_add_partitions,
    lower=_lower_add_partitions,
)

ADD_OFFSETS_TO_TXN = ApiSchema(
    request_fields=(_TRANSACTIONAL_ID, _PRODUCER_ID, _PRODUCER_EPOCH, GROUP_ID),
    response_fields=(throttle_time(0), ERROR),
)

END_TXN = ApiSchema(
    request_fields=(_TRANSACTIONAL_ID, _PRODUCER_ID, _PRODUCER_EPOCH, bool_field("committed")),
    response_fields=(throttle_time(0), ERROR),
)

WRITE_TXN_MARKERS = ApiSchema(
    request_fields=(
        struct_array(
            "markers",
            _PRODUCER_ID,
            _PRODUCER_EPOCH,
            bool_field("transaction_result"),
            struct_array("topics", str_field("name"), array_field(Kind.INT, "partition_indexes")),
            int32_field("coordinator_epoch"),
        ),
    ),
    response_fields=(
        struct_array(
            "markers",
            _PRODUCER_ID,
            struct_array(
                "topics",
                str_field("name"),
                struct_array("partitions", int32_field("partition_index"), ERROR),
            ),
        ),
    ),
)

TXN_OFFSET_COMMIT = ApiSchema(
    request_fields=(
        _TRANSACTIONAL_ID,
        GROUP_ID,
        _PRODUCER_ID,
        _PRODUCER_EPOCH,
        int32_field("generation_id", 3),
        str_field("member_id", 3),
        group_instance(3),
        struct_array(
            "topics",
            str_field("name"),
            struct_array(
                "partitions",
                int32_field("partition_index"),
                int64_field("committed_offset"),
                int32_field("committed_leader_epoch", 2),
                str_field("committed_metadata", nullable=True),
            ),
        ),
    ),
    response_fields=(
        throttle_time(0),
        struct_array(
            "topics",
            str_field("name"),
            struct_array("partitions", int32_field("partition_index"), ERROR),
        ),
    ),
)
