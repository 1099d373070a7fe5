package node

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Folders of devices that no record names go when they are old, with what a Pod has written in them; others stay.
func TestSweep(t *testing.T) {
	s := State(t.TempDir())
	if err := s.Sweep(0, nil); err != nil {
		t.Fatal("nothing is there yet:", err)
	}
	old := time.Now().Add(-time.Hour)
	for _, id := range []string{"nic-000", "nic-001", "nic-002", "." + "nic-003"} {
		if err := errors.Join(os.MkdirAll(filepath.Join(s.Slot(id), "x", "y"), 0o755), os.Symlink("/", filepath.Join(s.Slot(id), "link")), os.Chtimes(s.Slot(id), old, old)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(s.Rack("lab", "r0").Put(Users, "c0", Record{Slot: "nic-000"}), os.Chtimes(s.Slot("nic-002"), time.Now(), time.Now())); err != nil {
		t.Fatal(err)
	}
	var asked []string
	if err := s.Sweep(time.Minute, func(id string) { asked = append(asked, id) }); err != nil {
		t.Fatal(err)
	}
	if len(asked) != 3 {
		t.Errorf("unmounted are %v", asked)
	}
	left, err := os.ReadDir(s.Slots())
	if err != nil || len(left) != 2 || left[0].Name() != "nic-000" || left[1].Name() != "nic-002" {
		t.Errorf("left are %v, %v", left, err)
	}
}
