// Package fusee_test tests the store FUSEE on real racks: its commands, a workload, and that its
// answers are linearizable and its table right while packets are lost and copies are torn.
package fusee_test

import (
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/rdmalab/rdmalab/e2e/fixture"
)

func TestMain(m *testing.M) { fixture.Main(m) }

func TestFUSEE(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "fusee", Label("fusee"))
}

var _ = BeforeSuite(fixture.Build)

// rackFile is a rack with three memory servers and no server of a store.
const rackFile = `
hosts:
  - {name: "cn[0-2]", role: compute}
  - {name: "ms[0-2]", role: memory, memory: 16MiB}
`
