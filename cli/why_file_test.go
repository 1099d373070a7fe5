package cli

import (
	"os"
	"testing"
)

// A file beside which the rack has a host of that name is meant only by a path.
func TestCapturesAndHosts(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, file := range []string{"cn0", "packets", "x.pcap"} {
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	isHost := func(name string) bool { return name == "cn0" || name == "ms0" }
	for arg, want := range map[string]bool{
		"-": true, "cn0": false, "./cn0": true, "packets": true, "x.pcap": true, "missing.pcapng": true, "ms0": false, "missing": false, ".": false,
	} {
		if got := isCapture(arg, isHost); got != want {
			t.Errorf("%s: %v", arg, got)
		}
	}
}
