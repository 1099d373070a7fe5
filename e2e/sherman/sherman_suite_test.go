// Package sherman_test shows on real racks that the tree Sherman keeps its promises while packets
// are lost and machines die: its answers are right, a lock of the dead delays others by no more
// than its lease, and the tree is whole afterwards.
package sherman_test

import (
	"fmt"
	"os"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/rdmalab/rdmalab/e2e/fixture"
)

// gardenerVariable tells a test binary that it was started inside a host of the rack.
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
