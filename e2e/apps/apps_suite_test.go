// Package apps runs RDMA programs of other packages, unmodified, on hosts of a rack: each through
// several switches and links (ways_test.go), and writes docs/reference/programs.md.
package apps

import (
	"os"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/rdmalab/rdmalab/e2e/fixture"
)

func TestMain(m *testing.M) { fixture.Main(m) }

func TestApps(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "apps")
}

// whole says that all programs run in all ways, and not only the short selection of CI.
var whole = os.Getenv("RDMALAB_APPS") != "short"

var _ = BeforeSuite(fixture.Build)
