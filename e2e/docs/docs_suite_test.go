// Package docs runs the console blocks of README.md and the pages under docs that need a rack, and
// compares the output with the pages.
package docs

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/rdmalab/rdmalab/e2e/console"
	"github.com/rdmalab/rdmalab/e2e/fixture"
)

var write = flag.Bool("write", false, "write the output of this run into the pages")

const root = "../.."

func TestMain(m *testing.M) { fixture.Main(m) }

func TestDocs(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "docs")
}

var _ = BeforeSuite(fixture.Build)

var _ = Describe("the console blocks of the documents", func() {
	pages, err := console.Pages(root)
	if err != nil {
		panic(err) // there is no tree without pages
	}
	for _, p := range pages {
		if p.Kind != console.Rack {
			continue
		}
		It(p.Path, func(ctx context.Context) {
			name := fmt.Sprintf("docs-%d-%d", os.Getpid(), GinkgoRandomSeed()%1000)
			DeferCleanup(func() { Expect(fixture.Run("--rack", name, "down")).To(fixture.HaveExited(0)) })
			dir, err := filepath.Abs(root)
			Expect(err).NotTo(HaveOccurred())
			work := GinkgoT().TempDir()
			for _, name := range []string{"topo", "compose"} {
				Expect(os.Symlink(filepath.Join(dir, name), filepath.Join(work, name))).To(Succeed())
			}
			// Modules of the examples are built with this tree as it is, and not once more as a module that is replaced.
			workspace := filepath.Join(GinkgoT().TempDir(), "go.work")
			text := fmt.Sprintf("go 1.26.0\n\nuse (\n\t%q\n\t%q\n)\n", dir, filepath.Join(dir, "compose/examples/own"))
			Expect(os.WriteFile(workspace, []byte(text), 0o600)).To(Succeed())
			shell := console.Shell{Dir: work, Env: []string{
				"PATH=" + filepath.Dir(fixture.Binary()) + ":" + os.Getenv("PATH"), "RDMALAB_RACK=" + name, "GOWORK=" + workspace,
			}}
			now, wrong, err := p.Check(ctx, shell)
			Expect(err).NotTo(HaveOccurred())
			if *write {
				text := strings.ReplaceAll(strings.Join(now, "\n"), name, "default")
				Expect(os.WriteFile(filepath.Join(root, p.Path), []byte(text), 0o644)).To(Succeed())
				return
			}
			Expect(wrong).To(BeEmpty(), "%s", strings.Join(wrong, "\n\n"))
		})
	}
})
