// Package verbs runs the distribution's own RDMA programs, unmodified, on hosts of a rack.
package verbs

import (
	"os/exec"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/rdmalab/rdmalab/e2e/fixture"
)

func TestMain(m *testing.M) { fixture.Main(m) }

func TestVerbs(t *testing.T) {
	for _, p := range []string{"ibv_devices", "ibv_rc_pingpong", "ib_write_bw", "rping"} {
		if _, err := exec.LookPath(p); err != nil {
			t.Skipf("%s is not installed: apt-get install ibverbs-utils ibverbs-providers perftest rdmacm-utils", p)
		}
	}
	RegisterFailHandler(Fail)
	RunSpecs(t, "verbs")
}

var _ = BeforeSuite(fixture.Build)
