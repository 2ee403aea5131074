"""AWS behind the interface of clouds: EC2, CloudWatch and STS through botocore, never on the event loop's thread."""

from lcm.cloud.aws.config import AwsConfig, ConfigError, RegionConfig, Tuning
from lcm.cloud.aws.provider import AwsProvider

__all__ = ["AwsConfig", "AwsProvider", "ConfigError", "RegionConfig", "Tuning"]
