# As root, with bash, in the root of the repository, with the wheel in dist/. It changes nothing that runs.
version=$(basename dist/lcm_fleet-*.whl | cut -d- -f2)
mkdir "/opt/lcm-$version" &&       # a version that is there stays as it is
  python3 -m venv "/opt/lcm-$version" &&
  "/opt/lcm-$version/bin/pip" install --quiet --require-hashes -r requirements/deploy.txt &&
  "/opt/lcm-$version/bin/pip" install --quiet --no-deps dist/lcm_fleet-*.whl
