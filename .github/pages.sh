#!/usr/bin/env bash
# Put build/html into the branch gh-pages as one version, and push it: pages.sh VERSION
set -euo pipefail
version=$1
site=build/pages

if [ -n "${CI:-}" ]; then
  gh auth setup-git
  git config user.name "$GITHUB_ACTOR"
  git config user.email "$GITHUB_ACTOR@users.noreply.github.com"
fi
git worktree remove --force "$site" 2>/dev/null || true
git worktree prune
if git fetch --quiet --depth 1 origin gh-pages 2>/dev/null; then
  git worktree add --quiet --force -B gh-pages "$site" FETCH_HEAD
else
  git worktree add --quiet --orphan -b gh-pages "$site"
fi
SITE=$site VERSION=$version make --no-print-directory publish

git -C "$site" add --all
git -C "$site" commit --quiet --message "Publish $version, built from $(git rev-parse --short HEAD)"
git -C "$site" push --quiet origin gh-pages
