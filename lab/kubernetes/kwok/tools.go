//go:build tools

// Package tools names kwok, which plays thousands of nodes, so that go.mod and go.sum pin all of its modules.
package tools

import _ "sigs.k8s.io/kwok/cmd/kwok"
