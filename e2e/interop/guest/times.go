package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// times returns for how many nanoseconds the threads of all processes with this name have had a
// processor, and for how many they have waited for one, since they began (schedstat of the kernel).
func times(name string) (ran, waited uint64, err error) {
	comms, err := filepath.Glob("/proc/[0-9]*/comm")
	if err != nil {
		return 0, 0, err
	}
	found := false
	for _, path := range comms {
		if comm, err := os.ReadFile(path); err != nil || strings.TrimSpace(string(comm)) != name {
			continue // another process, or one that has ended
		}
		stats, err := filepath.Glob(filepath.Dir(path) + "/task/*/schedstat")
		if err != nil {
			return 0, 0, err
		}
		for _, path := range stats {
			text, err := os.ReadFile(path)
			if err != nil {
				continue // the thread has ended
			}
			f := strings.Fields(string(text))
			if len(f) < 2 {
				return 0, 0, fmt.Errorf("%s: %q", path, text)
			}
			r, err := strconv.ParseUint(f[0], 10, 64)
			if err != nil {
				return 0, 0, fmt.Errorf("%s: %w", path, err)
			}
			w, err := strconv.ParseUint(f[1], 10, 64)
			if err != nil {
				return 0, 0, fmt.Errorf("%s: %w", path, err)
			}
			ran, waited, found = ran+r, waited+w, true
		}
	}
	if !found {
		return 0, 0, fmt.Errorf("there is no process %s", name)
	}
	return ran, waited, nil
}
