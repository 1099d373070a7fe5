package main

import (
	"path/filepath"
	"strings"
	"testing"
)

// Every change in known.txt can still be made: an entry whose code has gone hides nothing.
func TestKnownChangesCanBeMade(t *testing.T) {
	t.Chdir(filepath.Join("..", ".."))
	known, err := readKnown(filepath.Join("e2e", "mutate", "known.txt"))
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]map[string]bool{} // by folder: the keys
	for key := range known {
		file, _, _ := strings.Cut(key, " ")
		pkg := filepath.Dir(file)
		if found[pkg] == nil {
			all, err := find(pkg)
			if err != nil {
				t.Fatalf("%s: %v", pkg, err)
			}
			found[pkg] = map[string]bool{}
			for i := range all {
				found[pkg][all[i].key()] = true
			}
		}
		if !found[pkg][key] {
			t.Errorf("there is no such change: %s", key)
		}
	}
}
