"""The lablet controller: labs on CML servers, made, started, watched and removed as lablets say."""
