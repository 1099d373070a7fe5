// Package switch_test shows on real racks that the switch program swordbox is safe: locks through
// it keep their promise while packets are lost and machines die, its commands say and do what they
// should, and captures show what it did.
package switch_test

import (
	"fmt"
	"os"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/rdmalab/rdmalab/e2e/fixture"
)

// peerVariable tells a test binary that it was started inside a host of the rack.
const peerVariable = "RDMALAB_E2E_LOCKER"

func TestMain(m *testing.M) {
	if os.Getenv(peerVariable) == "" {
		fixture.Main(m)
		return
	}
	if err := locker(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "locker:", err)
		os.Exit(1)
	}
}

func TestSwitch(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "switch", Label("switch"))
}

var _ = BeforeSuite(fixture.Build)
