package cli

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// plot writes SVG, and says so when the file's name wants another format.
func TestPlotWritesSVG(t *testing.T) {
	for name, ok := range map[string]bool{"x.svg": true, "x.SVG": true, "x": true, "/dev/stdout": true, "x.png": false, "a/b.PDF": false} {
		err := svgFile(name)
		if (err == nil) != ok {
			t.Errorf("%s: %v", name, err)
		}
		if err != nil && !strings.Contains(err.Error(), strings.SplitN(name, ".", 2)[0]+".svg") {
			t.Errorf("%s: %v says no name to write", name, err)
		}
	}
}

// The flag --qps of a test that makes several runs is no flag that was set to 0.
func TestSeveralQueuePairsAreNoZero(t *testing.T) {
	for n, ok := range map[string]bool{"4": true, "0": false} {
		var f perfFlags
		cmd := &cobra.Command{}
		f.define(cmd)
		if err := cmd.ParseFlags([]string{"--from", "cn0", "--to", "ms0", "--qps", n}); err != nil {
			t.Fatal(err)
		}
		f.config.Test = "write_bw"
		if err := f.valid(cmd.Flags()); (err == nil) != ok {
			t.Errorf("--qps %s: %v", n, err)
		}
	}
}
