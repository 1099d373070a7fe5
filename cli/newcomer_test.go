package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/rdmalab/rdmalab/plot"
)

// A picture's format is that of its name's suffix; a name with another one is refused, with what to write.
func TestPictureFiles(t *testing.T) {
	svg := (&plot.Chart{Title: "x", Panels: []plot.Panel{{Series: []plot.Series{{Name: "a", Points: []plot.Point{{X: 1, Y: 2}}}}}}}).SVG()
	dir := t.TempDir()
	for name, begins := range map[string]string{"x.svg": "<svg", "x.SVG": "<svg", "x": "<svg", "x.png": "\x89PNG", "a.PDF": "%PDF-"} {
		if err := pictureFile(name); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		file := filepath.Join(dir, name)
		if err := writePicture(file, svg); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if b, err := os.ReadFile(file); err != nil || !strings.HasPrefix(string(b), begins) {
			t.Errorf("%s begins with %.8q, %v", name, b, err)
		}
	}
	for _, name := range []string{"x.jpg", "a/x.eps"} {
		want := strings.TrimSuffix(name, filepath.Ext(name)) + ".pdf"
		if err := pictureFile(name); !isUse(err) || !strings.Contains(err.Error(), want) {
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
