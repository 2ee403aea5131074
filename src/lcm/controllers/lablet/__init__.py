"""The lablet controller: creates, starts, observes and deletes labs on CML servers as the lablets require."""
