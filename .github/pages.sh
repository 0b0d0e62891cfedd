#!/usr/bin/env bash
# Put build/html into the branch gh-pages as one version, and push it: pages.sh VERSION
# Where another version was pushed meanwhile, it is put into what is there then: so each of many that
# are pushed at once comes to its turn.
set -euo pipefail
version=$1
site=build/pages

if [ -n "${CI:-}" ]; then
  gh auth setup-git
  git config --global user.name "$GITHUB_ACTOR"
  git config --global user.email "$GITHUB_ACTOR@users.noreply.github.com"
fi
for attempt in {1..20}; do
  rm -rf "$site"
  git init --quiet --initial-branch gh-pages "$site"
  git -C "$site" remote add origin "$(git remote get-url origin)"
  if git ls-remote --exit-code origin refs/heads/gh-pages >/dev/null; then
    git -C "$site" pull --quiet --depth 1 origin gh-pages
  fi
  SITE=$site VERSION=$version make --no-print-directory publish

  git -C "$site" add --all
  if git -C "$site" diff --cached --quiet; then
    echo "The branch gh-pages has this already."
    exit
  fi
  git -C "$site" commit --quiet --message "Publish $version, built from $(git rev-parse --short HEAD)"
  git -C "$site" push --quiet origin gh-pages && exit
  echo "The push was refused (attempt $attempt of 20); another version may have come first."
  sleep $((RANDOM % 10))
done
echo "Nothing was published: see what git says above." >&2
exit 1
