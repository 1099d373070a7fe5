package uverbs

import (
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
