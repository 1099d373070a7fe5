// kubectl-rdmalab is a plugin of kubectl, which calls it for `kubectl rdmalab`.
package main

import "github.com/rdmalab/rdmalab/kube/kubectl"

func main() { kubectl.Main() }
