#!/usr/bin/env bash
# Put a text below the pull request that a workflow ran for: comment.sh FILE
# GitHub does not say which that is where it comes from a fork. So it is asked for the open pull
# requests of that branch, and the one whose head was checked is taken: $HEAD_OWNER, $HEAD_BRANCH and
# $HEAD_SHA are names that a stranger chose, and are data here.
set -euo pipefail
text=$1
if [ ! -e "$text" ]; then
  echo "There is no $text: nothing to say."
  exit
fi

number=$(gh api --method GET "repos/$GITHUB_REPOSITORY/pulls" \
  --raw-field state=open --raw-field "head=$HEAD_OWNER:$HEAD_BRANCH" \
  --jq '.[] | select(.head.sha == env.HEAD_SHA) | .number' | head -n 1)
if [ -z "$number" ]; then
  echo "No open pull request has this head any more: nothing to comment on."
  exit
fi
gh pr comment "$number" --repo "$GITHUB_REPOSITORY" --edit-last --body-file "$text" 2>/dev/null ||
  gh pr comment "$number" --repo "$GITHUB_REPOSITORY" --body-file "$text"
