# As root, with bash, in the root of the repository, with the wheel in dist/. It changes nothing that runs.
version=$(basename dist/lcm_fleet-*.whl | cut -d- -f2)
if [ -x "/opt/lcm-$version/bin/lcm" ]; then
  echo "/opt/lcm-$version is installed and stays as it is" >&2; false
else # the command is installed last: a folder without it is what an interrupted run left
  rm -rf "/opt/lcm-$version" && python3 -m venv "/opt/lcm-$version" &&
    "/opt/lcm-$version/bin/pip" install --quiet --require-hashes -r requirements/deploy.txt &&
    "/opt/lcm-$version/bin/pip" install --quiet --no-deps dist/lcm_fleet-*.whl || { rm -rf "/opt/lcm-$version"; false; }
fi
