package uverbs

import (
	"fmt"
	"strings"
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// Each place of the GID table has a type, also the free one: without it libibverbs takes the table
// for broken.
func TestTreeTypes(t *testing.T) {
	tree, places := Tree(verbs.DeviceAttr{GIDs: make([]verbs.GID, 3)}, "eth0"), 0
	for name := range tree {
		dir, n, ok := strings.Cut(name, "/gids/")
		if !ok {
			continue
		}
		if places++; tree[dir+"/gid_attrs/types/"+n] != "RoCE v2" {
			t.Errorf("%s has no type", name)
		}
	}
	if places != 4 {
		t.Errorf("%d places, want 4", places)
	}
}

// ibv_query_pkey reads the P_Keys of the port here.
func TestTreeHasPKeys(t *testing.T) {
	tree := Tree(verbs.DeviceAttr{PKeys: []uint16{0xffff, 1}}, "eth0")
	for i, want := range []string{"0xffff", "0x0001", ""} {
		if got := tree[fmt.Sprintf("class/infiniband/rxe0/ports/1/pkeys/%d", i)]; got != want {
			t.Errorf("P_Key %d is %q, want %q", i, got, want)
		}
	}
}
