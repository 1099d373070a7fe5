// Package shelf registers a store: the hash table of package store/template under a name of its own. A
// store of your own brings its own Format, Open and client; docs/guide/your-store.md has the steps.
package shelf

import (
	"github.com/rdmalab/rdmalab/store"
	"github.com/rdmalab/rdmalab/store/template"
)

func init() {
	table := template.Table
	table.Store = store.Store{Name: "shelf", Title: "the shelf", Commands: store.Commands{
		Short: "Run the store shelf, a hash table",
		Help:  "# rdmalab shelf\n\nshelf is the hash table of the template, in a program outside of the project.\n",
	}}
	table.Register()
}
