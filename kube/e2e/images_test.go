package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rdmalab/rdmalab/kube/image"
)

// Names of the images that the nodes get.
const (
	pauseImage = "rdmalab.local/pause:1"
	userImage  = "rdmalab.local/perftest:1"
	// driverImage has the driver of stores; nextImage is that of this module with nextVersion.
	driverImage = "rdmalab.local/driver:1"
	nextImage   = "rdmalab.local/kube:next"
)

// nextVersion is what the programs of nextImage say that they are.
const nextVersion = "next"

// images writes the images: of this module in two versions, of the pause program, of the driver of stores, and of Debian's
// ib_write_bw with what it needs.
func images(t *testing.T, dir string) []string {
	t.Helper()
	bin := mustEnv(t, "RDMALAB_KUBE_OUT")
	var list []string
	for _, name := range []string{"kube", "pause", "user", "driver", "next"} {
		list = append(list, filepath.Join(dir, name+".tar"))
	}
	must(t, image.Write(list[0], image.Name, []string{"/rdmalab-kube"}, map[string]string{
		"rdmalab-kube": filepath.Join(bin, "rdmalab-kube"), "rdmalab-kube-cni": filepath.Join(bin, "rdmalab-kube-cni"),
	}))
	must(t, image.Write(list[1], pauseImage, []string{"/pause"}, map[string]string{"pause": filepath.Join(bin, "pause")}))
	must(t, image.Write(list[3], driverImage, []string{"/driver"}, map[string]string{"driver": filepath.Join(bin, "driver")}))
	must(t, image.Write(list[4], nextImage, []string{"/rdmalab-kube"}, map[string]string{
		"rdmalab-kube": filepath.Join(bin, "next", "rdmalab-kube"), "rdmalab-kube-cni": filepath.Join(bin, "rdmalab-kube-cni"),
	}))
	files := map[string]string{}
	for _, name := range []string{"ib_write_bw", "ibv_devinfo", "cat", "sleep", "ls", "grep", "sh"} {
		path, err := exec.LookPath(name)
		if err != nil {
			t.Fatalf("%v: apt-get install perftest ibverbs-utils", err)
		}
		files["usr/bin/"+name] = path
		must(t, withLibraries(files, path))
	}
	must(t, image.Write(list[2], userImage, nil, files))
	return list
}

// withLibraries adds the shared libraries of a program, and its dynamic linker.
func withLibraries(files map[string]string, path string) error {
	out, err := exec.Command("ldd", path).CombinedOutput()
	if err != nil {
		return fmt.Errorf("ldd %s: %w: %s", path, err, out)
	}
	for line := range strings.Lines(string(out)) {
		for _, f := range strings.Fields(line) {
			if !strings.HasPrefix(f, "/") {
				continue
			}
			if _, err := os.Stat(f); err == nil {
				files[strings.TrimPrefix(f, "/")] = f
			}
		}
	}
	return nil
}
