// Package clover_test tests the store Clover on a real rack: its commands, the packets of its
// operations, and that every answer is right while its processes crash and restart.
package clover_test

import (
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/rdmalab/rdmalab/e2e/fixture"
)

func TestMain(m *testing.M) { fixture.Main(m) }

func TestClover(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "clover", Label("clover"))
}

var _ = BeforeSuite(fixture.Build)

// rackFile is the default rack with a switch that can steer.
const rackFile = `
switch: {program: swordbox}
hosts:
  - {name: md0, role: metadata}
  - {name: "ms[0-1]", role: memory, memory: 16MiB}
  - {name: "cn[0-3]", role: compute}
`
