package treeload

import (
	"strings"
	"testing"

	"github.com/rdmalab/rdmalab/topo/costs"
)

func TestLockTable(t *testing.T) {
	m, err := costs.Builtin("connectx5-dpdk")
	if err != nil {
		t.Fatal(err)
	}
	list := Locks()
	for i := range list {
		s := &list[i]
		if err := s.Run(m); err != nil {
			t.Fatal(err)
		}
	}
	var b strings.Builder
	if err := WriteLocks(&b, list); err != nil {
		t.Fatal(err)
	}
	t.Log("\n" + b.String())
}
