package cli

import (
	"encoding/json"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/rdmalab/rdmalab/swordbox/handler"
)

func switchListCmd(l *handler.Listing) *cobra.Command {
	var most int
	cmd := &cobra.Command{
		Use: l.Name, Short: l.Short,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if most < 0 {
				return badUse("-n %d: want a number of 0 or more; 0 means all", most)
			}
			return showList(cmd, l, most)
		},
	}
	cmd.Flags().IntVarP(&most, "most", "n", 20, l.Most)
	listFlags(cmd)
	return cmd
}

// showList shows the first most entries of a listing; if most is 0, all.
func showList(cmd *cobra.Command, l *handler.Listing, most int) error {
	var list []json.RawMessage
	if err := askBox(cmd, http.MethodGet, "/lists/"+l.Name, nil, &list); err != nil {
		return err
	}
	if most > 0 && len(list) > most {
		list = list[:most]
	}
	if wantJSON(cmd) {
		return printJSON(cmd, list)
	}
	names, err := namesOf(cmd)
	if err != nil {
		return err
	}
	return l.Print(hinted(cmd, cmd.OutOrStdout()), names.Of, list)
}
