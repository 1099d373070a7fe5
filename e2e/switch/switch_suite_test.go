// Package switch_test tests the switch program swordbox on real racks: histories of locks through
// it are linearizable while packets are lost and machines die, its commands work, and captures show
// its changes of packets.
package switch_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/rdmalab/rdmalab/e2e/fixture"
)

// peerVariable is set in the environment of a test binary that runs inside a host of the rack.
const peerVariable = "RDMALAB_E2E_LOCKER"

func TestMain(m *testing.M) {
	if os.Getenv(peerVariable) == "" {
		fixture.Main(m)
		return
	}
	what, addr, _ := strings.Cut(os.Getenv(peerVariable), " ")
	peer := func() error { return locker(os.Stdin, os.Stdout) }
	if nat := natPeers[what]; nat != nil {
		peer = func() error { return nat(addr) }
	}
	if err := peer(); err != nil {
		fmt.Fprintln(os.Stderr, what+":", err)
		os.Exit(1)
	}
}

func TestSwitch(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "switch", Label("switch"))
}

var _ = BeforeSuite(fixture.Build)
