#!/usr/bin/env bash
# Open a pull request with the recordings in the work tree, or renew the one that is open:
# propose.sh BRANCH REPORT, with the comparison in the file REPORT as its text. The page with figures,
# which `make compare` writes beside it, is an artifact of the run that proposes.
set -euo pipefail
branch=$1
report=$2

text=$(mktemp)
{
  echo "Recordings made from $(git rev-parse --short HEAD)."
  echo '```'
  # Names in a table must not end the quotation, and GitHub takes no longer text.
  head -c 60000 "$report" | iconv -c -f UTF-8 -t UTF-8 | tr '`' "'"
  echo '```'
  if [ -n "${GITHUB_RUN_ID:-}" ]; then
    echo "The whole comparison, with figures side by side, is the artifact \`comparison-${branch#recordings/}\`"
    echo "of $GITHUB_SERVER_URL/$GITHUB_REPOSITORY/actions/runs/$GITHUB_RUN_ID."
  fi
  # GitHub waits for somebody with the workflows of what a workflow opens.
  echo "Approve the workflows of this pull request to have it checked, or close and reopen it."
} >"$text"

git add --all recordings
if git diff --cached --quiet; then
  echo "Nothing was recorded: every recording is as it was."
  exit
fi
if [ -n "${CI:-}" ]; then
  gh auth setup-git
  git config user.name "$GITHUB_ACTOR"
  git config user.email "$GITHUB_ACTOR@users.noreply.github.com"
fi
git switch --quiet --force-create "$branch"
git commit --quiet --message "Record tutorials"
git push --quiet --force origin "$branch"
gh pr edit "$branch" --body-file "$text" 2>/dev/null ||
  gh pr create --head "$branch" --title "Recordings: ${branch#recordings/}" --body-file "$text"
