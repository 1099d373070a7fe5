package hostd

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The folder has the present files alone, also after a daemon that had others.
func TestSysfs(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "tree")
	has := func() map[string]string {
		got := make(map[string]string)
		names, err := former(dir)
		if err != nil {
			t.Fatal(err)
		}
		for name := range names {
			b, err := os.ReadFile(filepath.Join(dir, name))
			if err != nil {
				t.Fatal(err)
			}
			got[name] = strings.TrimSuffix(string(b), "\n")
		}
		return got
	}
	var t1, t2 sysfs
	t1.dir, t2.dir = dir, dir
	for i, c := range []struct {
		by    *sysfs
		files map[string]string
	}{
		{&t1, map[string]string{"port/state": "4: ACTIVE", "port/gids/0": "a", "port/gids/1": "b"}},
		{&t1, map[string]string{"port/state": "1: DOWN", "port/gids/0": "a"}},
		{&t1, map[string]string{"port/state": "1: DOWN", "port/gids/0": "a", "port/gids/2": "c"}},
		{&t2, map[string]string{"port/state": "4: ACTIVE", "port/gids/0": "a"}}, // the next daemon
	} {
		if err := c.by.write(c.files, nil); err != nil {
			t.Fatal(err)
		}
		if got := has(); !maps.Equal(got, c.files) {
			t.Errorf("step %d: %v, want %v", i, got, c.files)
		}
	}
}

// A link points to the present target, also after a daemon that had another one, and ends with it.
func TestSysfsLinks(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "tree")
	files := map[string]string{"devices/rxe0/node_type": "1: CA", "devices/rxe1/node_type": "1: CA"}
	for i, links := range []map[string]string{{"class/nic": "../devices/rxe0"}, {"class/nic": "../devices/rxe1"}, {}} {
		var s sysfs
		s.dir = dir
		for range 2 {
			if err := s.write(files, links); err != nil {
				t.Fatal(err)
			}
		}
		got, err := os.Readlink(filepath.Join(dir, "class/nic"))
		if want := links["class/nic"]; got != want || (err == nil) != (want != "") {
			t.Errorf("step %d: %q, %v, want %q", i, got, err, want)
		}
	}
}
