// Package sherman_test tests the tree Sherman on real racks while packets are lost and machines
// die: its answers are linearizable, a dead client's lock delays other clients by no more than its
// lease, and the structure of the tree is complete afterwards.
package sherman_test

import (
	"fmt"
	"os"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/rdmalab/rdmalab/e2e/fixture"
)

// gardenerVariable is set in the environment of a test binary that runs inside a host of the rack.
const gardenerVariable = "RDMALAB_E2E_GARDENER"

func TestMain(m *testing.M) {
	if os.Getenv(gardenerVariable) == "" {
		fixture.Main(m)
		return
	}
	if err := garden(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "gardener:", err)
		os.Exit(1)
	}
}

func TestSherman(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "sherman", Label("sherman"))
}

var _ = BeforeSuite(fixture.Build)
