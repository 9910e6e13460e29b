//go:build tools

// Package tools names the command the lab builds, so that go.sum covers it.
package tools

import (
	_ "k8s.io/kubernetes/cmd/kube-apiserver"
)
