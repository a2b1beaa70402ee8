// Of which thread opinions are shown, as the address says it.

export interface FeedbackSearch {
  thread?: string | undefined;
}

export function feedbackSearch(given: Record<string, unknown>): FeedbackSearch {
  return { thread: typeof given["thread"] === "string" && given["thread"] !== "" ? given["thread"].slice(0, 200) : undefined };
}
