// Package sherman_test shows on real racks that the tree Sherman keeps its promises while packets are lost and machines die: its
// answers are right, a lock of the dead delays others by no more than its lease, and the tree is whole afterwards.
package sherman_test

import (
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/rdmalab/rdmalab/e2e/fixture"
)

func TestSherman(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "sherman", Label("sherman"))
}

var _ = BeforeSuite(fixture.Build)
