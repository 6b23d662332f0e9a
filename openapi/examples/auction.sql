-- Bids on auctions, with who sells and what it costs: the streams of auction.json.
SELECT b.auction, b.price, p.name AS seller
FROM bids AS b
JOIN auctions AS a ON b.auction = a.id AND b.ts BETWEEN a.ts AND a.ts + INTERVAL 300 SECONDS
JOIN persons AS p ON a.seller = p.id AND a.ts BETWEEN p.ts AND p.ts + INTERVAL '10' MINUTES
WHERE b.price > 0
