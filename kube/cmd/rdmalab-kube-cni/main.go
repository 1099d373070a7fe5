// rdmalab-kube-cni is the chained CNI plugin of racks on Kubernetes: see package cni.
package main

import (
	"os"

	"github.com/rdmalab/rdmalab/kube/cni"
)

func main() { os.Exit(cni.Main()) }
