"""Kafka's message schemas that only real Kafka clients need.

The project's own nodes use only one version of each of these APIs. Real clients may use all
versions that a broker offers, and the schemas have these versions. `message_schemas` has the APIs
of groups.

In the definition of a field, a number is the first version with the field, and a second number is
the last version. `absent` is the value of the field in an answer, if the message class does not
have the field. `unused` marks a field of a request that is dropped, because the field has no effect
on this project's broker.

Source: Kafka 3.9 `clients/src/main/resources/common/message/*.json`.
"""

from protocol.wire.fields import (
    ERROR,
    ApiSchema,
    Kind,
    array_field,
    bool_field,
    int8_field,
    int16_field,
    int32_field,
    int64_field,
    records_field,
    str_field,
    struct_array,
    throttle_time,
)

NO_AUTHORIZED_OPERATIONS = -2_147_483_648
"""Kafka's value for authorized operations that the request did not ask for."""

_NAME = str_field("name")
_PARTITION_INDEX = int32_field("partition_index")

API_VERSIONS = ApiSchema(
    request_fields=(),
    response_fields=(
        ERROR,
        struct_array(
            "api_keys",
            int16_field("api_key"),
            int16_field("min_version"),
            int16_field("max_version"),
        ),
        throttle_time(1),
    ),
)

# -- producing and fetching records --

PRODUCE = ApiSchema(
    request_fields=(
        str_field("transactional_id", 3, nullable=True, unused=True),
        int16_field("acks"),
        int32_field("timeout_ms"),
        struct_array(
            "topic_data",
            _NAME,
            struct_array("partition_data", int32_field("index"), records_field("records")),
        ),
    ),
    response_fields=(
        struct_array(
            "responses",
            _NAME,
            struct_array(
                "partition_responses",
                int32_field("index"),
                ERROR,
                int64_field("base_offset"),
                int64_field("log_append_time_ms", 2, absent=-1),
                int64_field("log_start_offset", 5, absent=-1),
                struct_array(
                    "record_errors",
                    int32_field("batch_index"),
                    str_field("batch_index_error_message", nullable=True),
                    since=8,
                    absent=[],
                ),
                str_field("error_message", 8, nullable=True),
            ),
        ),
        throttle_time(1),
    ),
)

FETCH = ApiSchema(
    request_fields=(
        int32_field("replica_id"),
        int32_field("max_wait_ms"),
        int32_field("min_bytes"),
        int32_field("max_bytes", 3),
        int8_field("isolation_level", 4),
        int32_field("session_id", 7),
        int32_field("session_epoch", 7),
        struct_array(
            "topics",
            str_field("topic"),
            struct_array(
                "partitions",
                int32_field("partition"),
                int32_field("current_leader_epoch", 9),
                int64_field("fetch_offset"),
                int64_field("log_start_offset", 5, unused=True),
                int32_field("partition_max_bytes"),
            ),
        ),
        struct_array(
            "forgotten_topics_data",
            str_field("topic"),
            array_field(Kind.INT, "partitions"),
            since=7,
            unused=True,
        ),
        str_field("rack_id", 11, unused=True),
    ),
    response_fields=(
        throttle_time(1),
        int16_field("error_code", 7),
        int32_field("session_id", 7, absent=0),
        struct_array(
            "responses",
            str_field("topic"),
            struct_array(
                "partitions",
                _PARTITION_INDEX,
                ERROR,
                int64_field("high_watermark"),
                int64_field("last_stable_offset", 4),
                int64_field("log_start_offset", 5),
                struct_array(
                    "aborted_transactions",
                    int64_field("producer_id"),
                    int64_field("first_offset"),
                    since=4,
                    nullable=True,
                ),
                int32_field("preferred_read_replica", 11, absent=-1),
                records_field("records"),
            ),
        ),
    ),
)

LIST_OFFSETS = ApiSchema(
    request_fields=(
        int32_field("replica_id", unused=True),
        int8_field("isolation_level", 2, unused=True),
        struct_array(
            "topics",
            _NAME,
            struct_array(
                "partitions",
                _PARTITION_INDEX,
                int32_field("current_leader_epoch", 4),
                int64_field("timestamp"),
            ),
        ),
    ),
    response_fields=(
        throttle_time(2),
        struct_array(
            "topics",
            _NAME,
            struct_array(
                "partitions",
                _PARTITION_INDEX,
                ERROR,
                int64_field("timestamp", 1),
                int64_field("offset", 1),
                int32_field("leader_epoch", 4),
            ),
        ),
    ),
)

OFFSET_FOR_LEADER_EPOCH = ApiSchema(
    request_fields=(
        int32_field("replica_id", 3, unused=True),
        struct_array(
            "topics",
            str_field("topic"),
            struct_array(
                "partitions",
                int32_field("partition"),
                int32_field("current_leader_epoch", 2),
                int32_field("leader_epoch"),
            ),
        ),
    ),
    response_fields=(
        throttle_time(2),
        struct_array(
            "topics",
            str_field("topic"),
            struct_array(
                "partitions",
                ERROR,
                int32_field("partition"),
                int32_field("leader_epoch", 1),
                int64_field("end_offset"),
            ),
        ),
    ),
)

METADATA = ApiSchema(
    request_fields=(
        array_field(Kind.STRING, "topics", nullable=True),
        bool_field("allow_auto_topic_creation", 4),
        bool_field("include_cluster_authorized_operations", 8, 10, unused=True),
        bool_field("include_topic_authorized_operations", 8, unused=True),
    ),
    response_fields=(
        throttle_time(3),
        struct_array(
            "brokers",
            int32_field("node_id"),
            str_field("host"),
            int32_field("port"),
            str_field("rack", 1, nullable=True),
        ),
        str_field("cluster_id", 2, nullable=True),
        int32_field("controller_id", 1),
        struct_array(
            "topics",
            ERROR,
            _NAME,
            bool_field("is_internal", 1),
            struct_array(
                "partitions",
                ERROR,
                _PARTITION_INDEX,
                int32_field("leader_id"),
                int32_field("leader_epoch", 7),
                array_field(Kind.INT, "replica_nodes"),
                array_field(Kind.INT, "isr_nodes"),
                array_field(Kind.INT, "offline_replicas", 5),
            ),
            int32_field("topic_authorized_operations", 8, absent=NO_AUTHORIZED_OPERATIONS),
        ),
        int32_field("cluster_authorized_operations", 8, 10, absent=NO_AUTHORIZED_OPERATIONS),
    ),
)

# -- administration --

CREATE_TOPICS = ApiSchema(
    request_fields=(
        struct_array(
            "topics",
            _NAME,
            int32_field("num_partitions"),
            int16_field("replication_factor"),
            struct_array("assignments", _PARTITION_INDEX, array_field(Kind.INT, "broker_ids")),
            struct_array("configs", _NAME, str_field("value", nullable=True)),
        ),
        int32_field("timeout_ms"),
        bool_field("validate_only", 1),
    ),
    response_fields=(
        throttle_time(2),
        struct_array("topics", _NAME, ERROR, str_field("error_message", 1, nullable=True)),
    ),
)

DELETE_TOPICS = ApiSchema(
    request_fields=(array_field(Kind.STRING, "topic_names"), int32_field("timeout_ms")),
    response_fields=(throttle_time(1), struct_array("responses", _NAME, ERROR)),
)

DESCRIBE_CONFIGS = ApiSchema(
    request_fields=(
        struct_array(
            "resources",
            int8_field("resource_type"),
            str_field("resource_name"),
            array_field(Kind.STRING, "configuration_keys", nullable=True),
        ),
        bool_field("include_synonyms", 1),
        bool_field("include_documentation", 3, unused=True),
    ),
    response_fields=(
        throttle_time(0),
        struct_array(
            "results",
            ERROR,
            str_field("error_message", nullable=True),
            int8_field("resource_type"),
            str_field("resource_name"),
            struct_array(
                "configs",
                _NAME,
                str_field("value", nullable=True),
                bool_field("read_only"),
                bool_field("is_default", until=0),
                int8_field("config_source", 1),
                bool_field("is_sensitive"),
                struct_array(
                    "synonyms",
                    _NAME,
                    str_field("value", nullable=True),
                    int8_field("source"),
                    since=1,
                ),
                int8_field("config_type", 3),
                str_field("documentation", 3, nullable=True),
            ),
        ),
    ),
)
