//go:build qpcover

package scenario

import (
	"os"

	"github.com/rdmalab/rdmalab/e2e/coverage/record"
	"github.com/rdmalab/rdmalab/softrnic/transport"
)

// What make coverage counts comes from all seeds (verbstest.Tries).
func init() {
	transport.Observer = record.Cells("s")
	if err := os.Setenv("RDMALAB_LONG", "1"); err != nil {
		panic(err)
	}
	seedsPerTest, ofScenario = allSeeds, allSeeds
}
