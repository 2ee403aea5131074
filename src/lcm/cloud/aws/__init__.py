"""The AWS adapter: EC2, CloudWatch and STS through botocore, never on the thread of the event loop."""

from lcm.cloud.aws.config import AwsConfig, AwsConfigError, RegionConfig, Tuning
from lcm.cloud.aws.provider import AwsProvider

__all__ = ["AwsConfig", "AwsConfigError", "AwsProvider", "RegionConfig", "Tuning"]
