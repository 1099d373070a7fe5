// Package all registers every store of this project. A new store adds one line to its imports.
package all

import (
	_ "github.com/rdmalab/rdmalab/clover/plugin"     // clover
	_ "github.com/rdmalab/rdmalab/fusee/plugin"      // fusee
	_ "github.com/rdmalab/rdmalab/sherman/plugin"    // sherman
	_ "github.com/rdmalab/rdmalab/store/kvcs/plugin" // kvcs
	_ "github.com/rdmalab/rdmalab/store/nictable"    // nictable
	_ "github.com/rdmalab/rdmalab/store/pdpm"        // pdpm-central, pdpm-direct
	_ "github.com/rdmalab/rdmalab/store/template"    // template
)
