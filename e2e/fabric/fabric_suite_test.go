// Package fabric tests racks with several switches: frames take all paths, and go on when a trunk is
// cut and when a spine crashes or hangs; faults, captures, partitions and rules apply at the switch
// that has the link. Network devices of the machine are ports of them.
package fabric

import (
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/rdmalab/rdmalab/e2e/fixture"
)

func TestMain(m *testing.M) { fixture.Main(m) }

func TestFabric(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "fabric")
}

var _ = BeforeSuite(fixture.Build)
