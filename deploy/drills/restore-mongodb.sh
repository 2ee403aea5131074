# With all controllers and control planes stopped, and STORE_URL and LCM_CA_FILE as they have them. COPY: the backup.
python -m lcm.control_plane.store.mongo.backup restore "$COPY"
