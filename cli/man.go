package cli

import (
	"os"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

// manCmd is a hidden command that writes a page of the manual for each command. Packages have them.
func manCmd() *cobra.Command {
	var date string
	cmd := &cobra.Command{
		Use: "man FOLDER", Short: "Write pages of the manual, section 1", Hidden: true, Args: cobra.ExactArgs(1), Annotations: map[string]string{writesNote: outFolder}, ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			day, err := time.Parse(time.DateOnly, date)
			if err != nil {
				return badUse("--date %q: write it like 2026-01-31", date)
			}
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return err
			}
			root := cmd.Root()
			root.DisableAutoGenTag = true // it has the day of today
			documentAll(root)
			head := &doc.GenManHeader{Section: "1", Source: "rdmalab", Manual: "rdmalab", Date: &day}
			return doc.GenManTree(root, head, args[0])
		},
	}
	cmd.Flags().StringVar(&date, "date", time.Unix(0, 0).UTC().Format(time.DateOnly), "date of the pages")
	return cmd
}
